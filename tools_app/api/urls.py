"""Paths of the API that belong to tools: calls, and what people are asked about them."""

from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
